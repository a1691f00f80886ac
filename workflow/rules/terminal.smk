# What a run of the workflow prints: at the start its plan, at the end what it found and where the report is.
import subprocess
import sys

TERMINAL = startup.Terminal()
logger.addFilter(TERMINAL)


onstart:
    plan.announce_repeats(AGAIN)
    plan.announce(
        {
            job.rule.name: str(next(iter(job.log), ""))
            for job in workflow.dag.needrun_jobs()
        },
        list(SETTINGS.blocks),
        scale=SETTINGS.scale,
        folder=Path(HERE),
        needs=SETTINGS.needs,
        shares=SETTINGS.seconds,
        headlines=SETTINGS.headlines,
        handed_on=config["cluster"] == "none" and not config["hosts"],
        devices=(
            SETTINGS.machine.describe()
            if config["cluster"] == "none"
            else "a node of the cluster"
        ),
    )


onsuccess:
    results = [path for path in MEASURED if Path(path).exists()]
    try:
        shell(
            "$DRAW python -m scalecard summary --results {results:q} --left-out results/logs/report/left_out.json"
        )
    except subprocess.CalledProcessError:  # it has said what failed
        sys.exit(1)


onerror:
    logs = TERMINAL.failed
    shell("python -m scalecard summary --failed {logs:q}")
