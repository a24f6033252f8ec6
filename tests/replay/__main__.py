"""The command line of the replay."""

from __future__ import annotations

import argparse
import statistics
import time

from .contest import STRATEGIES, model_correlation, prior_correlation, replay
from .recorded_space import RecordedSpace
from .recording import FOLDER, WORKLOADS, Recording, path_of, record


def options() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("words", nargs="*", help="only recordings whose names hold one of these")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--record", action="append", metavar="SPEC", default=[], help="measure a space and store it")
    parser.add_argument("--record-all", action="store_true", help="measure and store all workloads that are not there")
    parser.add_argument("--rows", type=int, default=3000, help="candidates of a recording at most")
    parser.add_argument("--minutes", type=float, default=25.0, help="for all recordings together; they share it evenly")
    parser.add_argument("--target", default="native -num-cores=1")
    parser.add_argument("--noisy", action="store_true", help="mark the recording: the machine was not quiet")
    return parser.parse_args()


def main() -> None:
    """Record, or compare strategies on what was recorded."""
    chosen = options()
    specs = [*chosen.record, *[spec for spec in WORKLOADS if chosen.record_all and not path_of(spec).exists()]]
    end = time.monotonic() + 60 * chosen.minutes
    for number, spec in enumerate(specs):
        path, share = path_of(spec), (end - time.monotonic()) / (len(specs) - number)
        made = record(
            spec, path, count=chosen.rows, target=chosen.target, quiet=not chosen.noisy, seconds=max(1.0, share - 5)
        )
        print(f"{path.name}: {sum(map(len, made.rows.values()))} candidates, {path.stat().st_size} bytes", flush=True)
    if not specs:
        compare(chosen)


def compare(chosen: argparse.Namespace) -> None:
    """Print a line for each recording and strategy, and one for each strategy over all."""
    needed: dict[str, list[int]] = {name: [] for name in STRATEGIES}
    print(f"{'recording':34} {'strategy':13} {'trials to 95 %':>18} {'first 8':>8}")
    for path in sorted(FOLDER.glob("*.npz")):
        if chosen.words and not any(word in path.stem for word in chosen.words):
            continue
        recording = Recording.load(path)
        space = RecordedSpace(recording)
        if not space.sketches:
            print(f"{path.stem:34} its sketches are no more")
            continue
        ranks = (
            f"rank correlation of the prior {prior_correlation(space):.2f}, of the model {model_correlation(space):.2f}"
        )
        count = sum(len(s.recorded) for s in space.sketches)
        noise = "" if recording.about["quiet_machine"] else "; measured on a busy machine"
        print(f"{path.stem:34} {count} candidates, {space.lost} lost; {ranks}{noise}")
        for name, strategy in STRATEGIES.items():
            runs = [replay(space, strategy, seed=seed, trials=chosen.trials) for seed in range(chosen.seeds)]
            trials = sorted(run.trials for run in runs)
            needed[name] += trials
            first = statistics.median(run.first for run in runs)
            print(f"{'':34} {name:13} {statistics.median(trials):7.0f} ({trials[-1]:3} worst) {first:8.2f}", flush=True)
    for name, trials in needed.items():
        if trials:
            print(f"{'all':34} {name:13} {statistics.median(trials):7.0f} ({max(trials):3} worst)")


if __name__ == "__main__":
    main()
