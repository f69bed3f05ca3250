"""Recipes, presets and overrides: the result is checked, and a wrong key is told the nearest right one."""

import pytest

from ragen2.errors import ConfigError, UnknownName
from ragen2.training.config import PRESETS, dump_config, list_recipes, load_config, warmup_config


@pytest.mark.parametrize("recipe", list_recipes())
def test_every_recipe_loads_and_survives_a_round_trip(recipe, tmp_path):
    config = load_config(recipe)
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config))
    again = load_config(str(path))
    assert dump_config(again) == dump_config(config)
    assert again.environments == config.environments


@pytest.mark.parametrize("preset", [path.stem for path in PRESETS.glob("*.yaml")])
def test_every_preset_applies_over_a_recipe(preset):
    config = load_config("sokoban", [f"preset={preset}"])
    assert config.iterations == 400
    assert config.optimizer.learning_rate == 1e-6
    assert config.rollout.turn_tokens == 400


def test_an_override_beats_a_preset_wherever_it_stands():
    config = load_config("sokoban", ["iterations=3", "preset=paper"])
    assert config.iterations == 3


def test_overrides_reach_nested_keys_and_environment_options():
    config = load_config("frozen-lake", ["filter.top_p=0.8", "env.slip=0.2", "optimizer.learning_rate=1e-5"])
    assert config.filter.top_p == 0.8
    assert config.environments[0].options["slip"] == 0.2
    assert config.optimizer.learning_rate == 1e-5


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "dapo", "ppo"])
def test_a_plain_word_names_the_algorithm(name):
    assert load_config("frozen-lake", [f"algorithm={name}"]).algorithm.name == name


def test_the_filter_can_be_switched_off_by_a_word():
    assert load_config("frozen-lake", ["filter=none"]).filter.mode == "none"


def test_the_dump_shows_the_algorithms_own_values():
    assert "aggregation: seq-mean-token-mean" in dump_config(load_config("frozen-lake", ["algorithm=grpo"]))


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("filter.topp=0.8", r"filter\.topp.*Did you mean 'filter\.top_p'"),
        ("iteratoins=3", "Did you mean 'iterations'"),
        ("env.slipp=0.2", "Did you mean 'slip'"),
        ("env=frozen-lak", "Did you mean 'frozen-lake'"),
        ("algorithm=grop", "Did you mean 'grpo'"),
        ("preset=papr", "Did you mean 'paper'"),
        ("warmup.step=3", r"Did you mean 'warmup\.steps'"),
        ("model.lora.rr=3", "model.lora.rr"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(override, told):
    with pytest.raises(UnknownName, match=told):
        load_config("frozen-lake", [override])


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("filter.top_p=2", "top_p.*2"),
        ("iterations=0", "iterations is 0"),
        ("iterations=many", "iterations.*many"),
        ("rollout.group_size=1", "group size"),
        ("optimizer.token_budget=0", "token_budget is 0"),
        ("validation.pass_at=[4]", "pass_at holds 4"),
        ("noequals", "not of the form"),
        ("=3", "not of the form"),
        ("recipe.deep=3", "no keys"),
        ("env.size=99", "99"),
        ("filter.top_p=[", "not YAML"),
    ],
)
def test_a_wrong_value_names_key_value_and_what_is_allowed(override, told):
    with pytest.raises(ConfigError, match=told):
        load_config("frozen-lake", ["algorithm=grpo", override])


def test_an_unknown_recipe_is_told_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'frozen-lake'"):
        load_config("frozen-lak")


@pytest.mark.parametrize("text", ["[1, 2]", "just words", "\t:", ""])
def test_a_recipe_file_that_is_no_mapping_is_refused(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="recipe file"):
        load_config(str(path))


def test_env_and_environments_exclude_each_other(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("env: bandit\nenvironments: [bandit]\n")
    with pytest.raises(ConfigError, match="both"):
        load_config(str(path))


def test_several_environments_share_the_groups(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("environments: [{id: bandit, arms: train}, {id: frozen-lake, groups: 5}]\n")
    config = load_config(str(path))
    assert [item.id for item in config.environments] == ["bandit", "frozen-lake"]
    assert config.environments[1].groups == 5


def test_warmup_defaults_follow_the_model():
    assert warmup_config(load_config("frozen-lake")).optimizer == "muon"
    assert warmup_config(load_config("frozen-lake", ["model=smollm2-135m"])).optimizer == "adamw"
    assert warmup_config(load_config("frozen-lake", ["warmup.steps=7"])).steps == 7


def test_another_model_or_environment_leaves_the_recipes_own_settings_behind():
    config = load_config("frozen-lake", ["model.lora.r=4", "model=smollm2-135m"])
    assert config.model.critic_layers is None
    assert config.model.lora is not None
    assert config.model.lora.r == 4
    other = load_config("sokoban-5x5-1box", ["env.arms=train", "env=bandit"])
    assert dict(other.environments[0].options) == {"arms": "train"}
