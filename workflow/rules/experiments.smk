# One rule per experiment, named after it. The output goes to the log and, as it happens, to the terminal.
for experiment, block in SETTINGS.blocks.items():

    rule:
        name:
            experiment
        input:
            machine=f"{HERE}/machine.json",
            container=MARKER,
            code=inputs.of_experiment(experiment),
            workloads=SETTINGS.workload_files[experiment],
            again=str(plan.mark_of(Path(HERE, f"{experiment}.json"))),
        output:
            json=update(f"{HERE}/{experiment}.json"),  # the old result stays until there is a new one
        log:
            f"results/logs/{SETTINGS.platform}/{experiment}.log",
        priority: plan.priority(experiment)
        resources:
            machine=100,
            runtime=SETTINGS.job_minutes[experiment],
            seconds=SETTINGS.seconds.get(experiment, 0),  # no params: a changed budget measures nothing again
            usual=round(SETTINGS.needs[experiment]),
            nodes=SETTINGS.nodes[experiment],
            tasks=SETTINGS.nodes[experiment],
            tasks_per_gpu=0,  # otherwise the Slurm plugin reads `tasks` as tasks per GPU
        params:
            name=experiment,
            cluster=config["cluster"],
            nodes=SETTINGS.nodes[experiment],
            hosts=config["hosts"] if SETTINGS.nodes[experiment] > 1 else [],
            spec=block,
            data=config["data_dir"],
            dataset=inputs.dataset_of(experiment, config["dataset"]),
        message:
            f"{experiment}: {inputs.title(f'report.sections.{experiment}')}"
        shell:
            "python -m scalecard.jobs.every_node --cluster {params.cluster:q} --nodes {params.nodes:q}"
            " --hosts {params.hosts:q} --"
            " python -m scalecard.jobs.containers.launch {input.container:q} --data {params.data:q}"
            " --fetch {params.dataset:q} --writable results --"
            " python -m scalecard run {params.name:q} --spec {params.spec:q}"
            " --seconds {resources.seconds:q} --usual {resources.usual:q}"
            " --machine {input.machine:q} --output {output.json:q} 2>&1 | tee {log:q}"
