"""Work on two streams of a pretended GPU with one fault, or with what prevents it: planted_race.py FAULT [--prevented].

wait    a stream changes what another one has changed, and does not wait for it
reuse   memory is freed while another stream still reads it, and the allocator gives it out again
device  one GPU reads what a stream of another one writes
"""

import sys

import torch

fault, prevented = sys.argv[1], "--prevented" in sys.argv
values = torch.ones(1000, device="cuda:0")
side = torch.cuda.Stream("cuda:0")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    doubled = values * 2 if fault == "reuse" else values.mul_(2)

if fault == "wait":
    if prevented:
        torch.cuda.current_stream().wait_stream(side)
    values.add_(1)
elif fault == "reuse":
    if prevented:
        values.record_stream(side)
    del values
    torch.zeros(1000, device="cuda:0")
elif fault == "device":
    if prevented:
        torch.cuda.current_stream("cuda:1").wait_stream(side)
    torch._foreach_copy_([torch.empty(1000, device="cuda:1")], [values])
torch.cuda.synchronize()
