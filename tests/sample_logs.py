"""Small logs in the formats of other trainers."""

import json

PREFIX = "\x1b[36m(TaskRunner pid=8128)\x1b[0m "
BAR = "\x1b[36m(TaskRunner pid=8128)\x1b[0m \rTraining Progress:  87%|████| 174/200 [4:08:22<37:06, 85.64s/it]"


def verl_line(step: int, pairs: str, tail: str = "") -> str:
    return f"{PREFIX}step:{step} - {pairs}{tail}\n"


def verl_log() -> str:
    lines = ["============\n", "config: {'lr': 1e-06, 'step': {'a': 1}}\n", "INFO 06-21 step: none\n"]
    lines += [verl_line(0, "val-env/Sokoban/success:np.float64(0.1) - val-core/unknown/reward/mean@512:0.4", BAR)]
    for step in range(1, 31):
        pairs = [f"train/Sokoban/success:np.float64({0.1 + step / 100:.3f})", "actor/entropy:4.0e-01", "critic/score/mean:-1.5"]
        pairs += [f"train/Sokoban/non-zero/success:1 - response_length/mean:{1000 + step} - prompt_length/mean:0.007"]
        if step % 3 == 0:
            pairs.append("train/Sokoban/manager_invalid_action:np.float64(0.25)")
        if step % 5 == 0:
            pairs.append("collapse/valid_thinking_rate:1 - collapse_first_turn_sample/mi_seq_estimate:1.5")
            pairs.append("collapse_first_turn_sample/retrieval_chance_level:0.125")
        if step % 10 == 0:
            pairs.append(f"val-env/Sokoban/success:{0.1 + step / 50}")
        pairs.append("train/response_length:273.5")
        lines.append(verl_line(step, " - ".join(pairs), BAR if step % 2 else ""))
    return "".join(lines)


def write(tmp_path, text, name="run.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def state(entries, **more) -> str:
    return json.dumps({"best_metric": None, "global_step": 9, "log_history": entries, "max_steps": 9, **more}, indent=2)


def entry(step: int, **values):
    return {"step": step, "epoch": step / 10, "loss": 0.1, "reward": step / 10, "reward_std": 0.5, "entropy": 1.0, **values}


def wandb(runs, metrics=("train/reward",), steps=range(3)) -> str:
    columns = [f"{run} - {metric}{end}" for run in runs for metric in metrics for end in ("", "__MIN", "__MAX")]
    header = ",".join(f'"{cell}"' for cell in ("Step", *columns))
    rows = [",".join([f'"{s}"'] + [f'"{s / 10 + index}"' for index, _ in enumerate(columns)]) for s in steps]
    return "\n".join([header, *rows]) + "\n"
