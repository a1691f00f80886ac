# One figure an experiment, with every platform that has a result of it.
rule figure:
    input:
        results=results_of,
        section="workflow/src/scalecard/sections/{name}.py",
        library=settings.drawing_sources(),
    output:
        svg=report(
            "results/figures/{name}.svg",
            caption="../report/caption.rst",
            category="Figures",
            labels={"experiment": "{name}"},
        ),
        png="results/figures/{name}.png",
    log:
        "results/logs/figures/{name}.log",
    resources:
        machine=10,
    params:
        title=title_of,
    shell:
        "python -m scalecard plot {wildcards.name} --results {input.results}"
        " --output {output.svg} {output.png} 2>&1 | tee {log}"
