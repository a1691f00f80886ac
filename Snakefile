# ScaleCard: measure parallel training on this machine and report it. Every value is in config.yaml.
from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/config_files.smk"


configfile: "config.yaml"


# Only for `snakemake --sdm apptainer`; otherwise the workflow uses the engine that config.yaml names.
container: "docker/scalecard.sif"


include: "workflow/rules/common.smk"
include: "workflow/rules/machine.smk"
include: "workflow/rules/container.smk"
include: "workflow/rules/experiments.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/exports.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/terminal.smk"


rule all:
    default_target: True
    input:
        rules.report.output.html,
        rules.report.output.archive,
        MEASURED,
        BESIDE_EXPORTS,
        expand("results/figures/{name}.png", name=FIGURES),
    message:
        "everything is up to date"
