# One figure per experiment, with every platform that has a result of it.
rule figure:
    input:
        results=results_of,
        code=code_of_figure,
    output:
        svg=report(
            update(
                "results/figures/{name}.svg"
            ),  # the last figure stays until there is a new one
            caption="../report/caption.rst",
            category="Figures",
            labels={"experiment": "{name}"},
        ),
        png=update("results/figures/{name}.png"),
    log:
        "results/logs/figures/{name}.log",
    resources:
        machine=10,
    params:
        title=title_of,
        show=json.dumps(config.get("show")),
    message:
        "draw the figure of {wildcards.name}"
    shell:
        "python -m scalecard plot {wildcards.name:q} --results {input.results:q}"
        " --show {params.show:q} --output {output.svg:q} {output.png:q} 2>&1 | tee {log:q}"
