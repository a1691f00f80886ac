# On a cluster the nodes are measured, not the machine that runs the workflow, so a job describes a node. It runs once;
# forced, and alone, it checks whether anything has changed, and refuses if there are results of another machine.
if config["cluster"] != "none":

    rule machine:
        output:
            json=update(f"{HERE}/machine.json"),
        log:
            f"results/logs/{SETTINGS.platform}/machine.log",
        resources:
            machine=100,
            runtime=10,
            nodes=1,
            tasks=1,
            tasks_per_gpu=0,
        params:
            cluster=config["cluster"],
        message:
            "describe a node of the cluster"
        shell:
            "python -m scalecard.jobs.every_node --cluster {params.cluster:q} --nodes 1 --"
            " python -m scalecard probe --output {output.json:q} 2>&1 | tee {log:q}"
