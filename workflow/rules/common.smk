# What the other rules share: the checked configuration, this machine's platform, and functions that name inputs.
import importlib.util
import json
import os
import shlex

from snakemake.logging import logger
from snakemake.settings.types import DeploymentMethod

from scalecard import exports
from scalecard.hardware import host
from scalecard.jobs import inputs, kubernetes_pods, plan, startup
from scalecard.jobs.config import resolve
from scalecard.jobs.containers import build, launch


# On a cluster these run where the workflow was started; without one, every job does.
localrules:
    all,
    container,
    figure,
    report,


# A measurement takes the whole machine, a figure a tenth of it, so nothing overlaps with a measurement. Registered here
# so that --resources on the command line cannot drop the limit; local because a cluster's nodes do not share it.
if "machine" not in workflow.global_resources:
    workflow.register_resource("machine", 100)


resource_scopes:
    machine="local",


try:
    if workflow.is_main_process:
        startup.check_disk_space(sys.argv)
    SETTINGS = resolve(
        config,
        check=workflow.is_main_process,
        in_sif=DeploymentMethod.APPTAINER
        in workflow.deployment_settings.deployment_method,
    )
    HERE = f"results/{SETTINGS.platform}"
    if workflow.is_main_process and config["cluster"] == "none":
        inputs.write_machine(Path(HERE, "machine.json"), SETTINGS.machine)
except InvalidConfig as error:
    raise WorkflowError(str(error)) from None

if workflow.is_main_process:
    for folder in inputs.ignored_folders():
        logger.warning(
            f"{folder}: ignored, because it is not named like a platform: {inputs.PLATFORM_NAME}"
        )

# Not on a command line, which Snakemake logs: build_args may hold the password of a proxy.
os.environ.update(SCALECARD_CONTAINER=json.dumps(config["container"]))

MEASURED = expand(f"{HERE}/{{name}}.json", name=SETTINGS.blocks)
ANSWERS = inputs.answers()
ANSWER_SETTINGS = {"forecast": config["forecast"]}
FIGURES = [*SETTINGS.blocks, *ANSWERS]
FIRST_LOOK = [name for name in plan.FIRST_LOOK if name in SETTINGS.blocks]
HISTORY = inputs.histories(SETTINGS.platform)

if workflow.is_main_process:
    startup.take_over_lock(sys.argv, temporary=workflow.snakemake_tmp_dir)
    startup.remove_leftovers()
    host.project_salt()
    if config["cluster"] == "slurm":
        startup.wait_for_slurm_jobs(sys.argv)
    if config["cluster"] == "kubernetes":
        kubernetes_pods.complete_all()

# Experiments that are measured again though nothing has changed, and why.
AGAIN = (
    plan.to_repeat(map(Path, MEASURED), SETTINGS.seconds)
    if workflow.is_main_process
    else {}
)

# The interpreter that runs the workflow also runs its jobs, whether or not its environment is activated, unless
# Snakemake itself runs them in a container. The project's code comes before the user's own PYTHONPATH. Unlike params,
# changes here do not trigger a rerun. Braces of a path are doubled, because Snakemake formats this text.
PROGRAMS, CODE = (
    shlex.quote(str(folder)).replace("{", "{{").replace("}", "}}")
    for folder in (os.path.dirname(sys.executable), inputs.SOURCES.parent)
)
# A host that only starts containers has nothing that draws: there figures and reports are made in the image, too.
DRAWS = all(map(importlib.util.find_spec, ("matplotlib", "pandas", "scipy")))
IN_IMAGE = f"python -m scalecard.jobs.containers.launch {HERE}/container.json --data results --writable .snakemake --"
shell.prefix(
    f'set -eo pipefail; [ -n "$APPTAINER_CONTAINER" ] || export PATH={PROGRAMS}:$PATH;'
    " set -u;"
    f" export SCALECARD_STRICT={config['strict']:d}"
    " PYTHONNOUSERSITE=1 CUDA_DEVICE_ORDER=PCI_BUS_ID"
    f' PYTHONPATH={CODE}"${{{{PYTHONPATH:+:$PYTHONPATH}}}}";'
    f" DRAW='{'' if DRAWS else IN_IMAGE}'; "
)


def results_of(wildcards):
    """One experiment's results on every platform, this one's first; of an answer, this platform's of them all."""
    if wildcards.name in ANSWERS:
        return MEASURED
    return inputs.result_files(wildcards.name, SETTINGS.platform)


def all_results(wildcards):
    """Every experiment's results on every platform."""
    return [
        path
        for name in SETTINGS.blocks
        for path in inputs.result_files(name, SETTINGS.platform)
    ]


def title_of(wildcards):
    """The question that a section or an answer answers, for the captions of `snakemake --report`."""
    room = "answers" if wildcards.name in ANSWERS else "sections"
    return inputs.title(f"report.{room}.{wildcards.name}")


def settings_of(wildcards):
    """The values of config.yaml that an answer's figure needs."""
    chosen = {
        name: values
        for name, values in ANSWER_SETTINGS.items()
        if name == wildcards.name
    }
    return json.dumps(chosen)


def code_of_figure(wildcards):
    """The sources that draw one experiment's or answer's figure."""
    return inputs.of_figure(wildcards.name)


def folder_of_figures(wildcards, input):
    """Where the report finds the figures."""
    return os.path.dirname(input.figures[0])


def folder_of_exports(wildcards, output):
    """Where all of them are written."""
    return os.path.dirname(output[0])


wildcard_constraints:
    name="[a-z][a-z0-9_]*",
