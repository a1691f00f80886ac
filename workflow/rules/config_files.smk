# Before Snakemake reads config.yaml and merges it with the files of --configfile, each is checked: what its YAML says
# twice, or by accident, is lost afterwards. Files of a workflow that has this one as a module are its own affair.
import sys

from snakemake.exceptions import WorkflowError

sys.path.insert(0, str(Path(workflow.current_basedir).parent / "src"))

from scalecard.jobs.config_file import InvalidConfig, check_files

try:
    if not workflow.modifier.skip_configfile:
        check_files([Path("config.yaml"), *workflow.config_settings.configfiles])
except InvalidConfig as error:
    raise WorkflowError(str(error)) from None
