"""blocks(model) returns the decoder layers alone, not the embedding and the head."""

import module_lists

model, batch, loss = module_lists.model, module_lists.batch, module_lists.loss


def blocks(made):
    return list(made.layers)
