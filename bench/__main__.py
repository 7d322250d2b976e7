"""``python -m bench NAME... [--data DIR] [-o out/]``: run experiments, write tables, figures and the report."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from problm.support.files import write_atomically
from problm.support.written import Written

from .harness.progress import Progress
from .harness.run import SCALES, Settings, run, single_thread


def parser() -> argparse.ArgumentParser:
    from .paper import NAMES

    p = argparse.ArgumentParser(prog="problm bench", description="The paper's experiments, with peers.")
    p.add_argument("names", nargs="+", metavar="NAME", choices=[*NAMES, "all"], help=f"{', '.join(NAMES)}, or all")
    p.add_argument("--data", help="folder of the real data sets; default: stand-ins made from the seed")
    p.add_argument(
        "-o", "--output", type=Path, default=Path("out/bench"), help="folder for the results (default: out/bench)"
    )
    p.add_argument(
        "--scale", choices=SCALES, default="default", help="how many runs: %(choices)s (default: %(default)s)"
    )
    p.add_argument("--seed", type=int, default=2020, help="seed of data and starts (default: %(default)s)")
    p.add_argument("--workers", type=int, help="processes where time is not measured (default: all cores)")
    p.add_argument(
        "--publish",
        type=Path,
        metavar="DIR",
        help="also write the tables to this folder (committed ones: bench/results/reproduction)",
    )
    p.add_argument("--force", action="store_true", help="replace files in the output folder that problm did not write")
    p.add_argument("--no-figures", action="store_true", help="leave out the SVG and PNG files")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0, or 1 if a run of an experiment failed."""
    single_thread()
    options = parser().parse_args(arguments)
    try:
        settings = Settings(options.data, options.scale, options.seed)
    except (FileNotFoundError, ValueError) as error:
        print(f"problm bench: {error}", file=sys.stderr)
        return 2
    try:
        return execute(
            options.names,
            settings,
            options.output,
            workers=options.workers,
            figures=not options.no_figures,
            publish=options.publish,
            force=options.force,
        )
    except KeyboardInterrupt:
        print("interrupted: the same command continues where this one stopped", file=sys.stderr)
        return 130


def execute(
    names: Sequence[str],
    settings: Settings,
    output: Path,
    *,
    workers: int | None = None,
    figures: bool = True,
    publish: Path | None = None,
    force: bool = False,
) -> int:
    """Run the named experiments and write all their files into ``output``."""
    from .harness import environment, record
    from .harness.claims import write_claims
    from .harness.report import collected, write_report
    from .harness.summary import caption, describe
    from .paper import NAMES, experiment

    chosen = [experiment(n) for n in (NAMES if "all" in names else dict.fromkeys(names))]
    stems = [e.stem(settings) for e in chosen]
    files = [f"{stem}{suffix}" for stem in stems for suffix in (".json", ".md")] + ["environment.json", "report.html"]
    written = Written(output)
    if (foreign := written.foreign(files)) and not force:
        print(
            f"problm bench: {output} holds files that problm did not write, or that were changed since: "
            f"{', '.join(foreign)}; give another --output, or --force to replace them",
            file=sys.stderr,
        )
        return 2
    progress = Progress({stem: e.expected_seconds for stem, e in zip(stems, chosen, strict=True)})
    output.mkdir(parents=True, exist_ok=True)
    summaries = []
    began = time.monotonic()
    for stem, e in zip(stems, chosen, strict=True):
        started, own = time.monotonic(), e.settings(settings)
        records = run(e, own, output, workers=workers, progress=progress)
        summary = e.summarise(e, records, own)
        summary.data = "real data" if own.data else "stand-ins" if e.real else "made data"
        caption(summary)
        summaries.append(summary)
        known = environment.describe(own, [e], time.monotonic() - started)
        found = summary.as_dict()
        with written.writing([f"{stem}.json", f"{stem}.md"]):
            record.write(output, stem, describe(summary), found, known, quiet=True)
        if publish:  # figures are large and can be made again
            told = {k: v for k, v in found.items() if k not in ("panels", "pictures")}
            record.write(publish, stem, describe(summary), told, known, quiet=True)
    progress.finish()
    if publish:
        write_claims(publish)
    if figures:
        from .harness.figures import draw

        for stem, summary in zip(stems, summaries, strict=True):
            draw(summary, output / "figures", stem)
    about = environment.describe(settings, chosen, time.monotonic() - began)
    with written.writing(["environment.json", "report.html"]):
        write_atomically(output / "environment.json", json.dumps(about, indent=1))
        write_report(collected(output), about, output / "report.html")
    for stem, summary in zip(stems, summaries, strict=True):
        print(f"{stem}: {summary.verdict}. {summary.finding}")
    print(f"report: {output / 'report.html'}")
    failed = [f for s in summaries for f in s.failures]
    for failure in failed:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
