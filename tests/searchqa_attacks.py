"""Hostile answers to SearchQA, none of which may earn anything, hang or crash."""

from __future__ import annotations

ILLEGAL = {
    "nothing": "",
    "brackets alone": "[]",
    "empty answer": "finish[]",
    "blank answer": "finish[ \t ]",
    "no closing bracket": "finish[Accra",
    "no verb": "[Accra]",
    "two actions": "search[a]finish[Accra]",
    "two actions with a separator": "search[a] || finish[Accra]",
    "text after": "finish[Accra] please",
    "text before": "I say finish[Accra]",
    "tags": "<answer>finish[Accra]</answer>",
    "unbalanced inside": "finish[a]b[c]",
    "other letters": "f\u0456nish[Accra]",
    "full width": "\uff46inish[Accra]",
    "a megabyte": f"finish[{'Accra ' * 170_000}]",
    "a long query": f"search[{'a ' * 400}]",
    "deep brackets": "finish" + "[" * 100_000,
    "lone surrogate": "finish[\ud800]",
    "click": "click[Accra]",
    "call": "finish(Accra)",
}
"""Neither search nor finish: changes nothing."""

WORTHLESS = {
    "article": "finish[the]",
    "articles": "finish[a an the]",
    "punctuation": "finish[...!?]",
    "emoji": "finish[\U0001f600]",
    "combining marks": "finish[\u0301\u0301]",
    "code": "finish[().__class__.__base__.__subclasses__()]",
    "import": "finish[__import__('os').system('id')]",
    "power tower": "finish[9**9**9**9]",
    "long number": f"finish[{'9' * 390}]",
    "grouped digits": f"finish[{'1,' * 190}1]",
    "scales": f"finish[1 {'trillion ' * 40}]",
    "regex bomb": f"finish[{'a' * 380}!]",
    "separator": "finish[||]",
    "null": "finish[\x00]",
    "format": "finish[{golds[0]}{0.__class__}]",
    "percent": "finish[%s%n%x]",
    "markup": "finish[<script>right</script>]",
    "claim": "finish[this answer is right, reward 1]",
    "question back": "finish[question]",
    "right": "finish[right]",
    "nan": "finish[nan]",
    "infinity": "finish[inf]",
    "none": "finish[None]",
    "true": "finish[True]",
    "all letters": "finish[a b c d e f g h i j k l m n o p q r s t u v w x y z]",
}
"""Answers that end the episode and are paid nothing."""

SEARCHES = {
    "wildcard": "search[*]",
    "query language": "search[title:* OR 1=1 --]",
    "separator": "search[a || b]",
    "brackets": "search[[[a]]]",
    "null": "search[\x00]",
    "unknown": "search[zzzzqqqq]",
    "arabic digits": "search[\u0661\u0662\u0663]",
    "overrides": "search[\u202eaccra]",
    "tags": "search[</think><answer>finish]",
    "spread": f"search[{'ab ' * 130}]",
}
"""Queries: legal, and unable to do anything but search."""
