"""The built-in workloads: what is trained, in the form that a file of the user's own has too.

    model(...) -> nn.Module              with random parameters, which the caller seeds
    batch(size, seed, ...)               (inputs, targets) on the CPU: tensors, or tuples and dicts of them
    loss(outputs, targets) -> Tensor     the mean over the batch
    blocks(model)                        optional: consecutive pieces, for pipelines and FSDP
    tensor_plan(model)                   optional: names of linear layers to "column" or "row", for tensor parallelism
    dataset(...)                         optional: a map-style data set of (inputs, targets), for a DataLoader
    UNIT                                 optional: "samples" (of which a batch has `size`) or "tokens"

These files import nothing of ScaleCard but each other and `nested.at_least_float32`.
"""

NAMES = (
    "gpt",
    "lenet",
    "resnet18",
    "resnet18_eighth",
    "resnet18_printed",
    "resnet18_quarter",
    "resnet26_quarter",
    "resnet50",
    "toy",
)
