"""How fast a launch is: tokens per second as a range, with what it stands on.

`work` counts bytes and operations, `rates` and `factors` say what devices do with them, `roofline`
puts both together, `penalties` and `measured` correct it.
"""

from __future__ import annotations

from kvwise.plan.speed.estimate import Speed, estimate
from kvwise.plan.speed.measured import Measured
from kvwise.plan.speed.reads import Weights, host_reads, weights_read
from kvwise.plan.speed.roofline import Range

__all__ = ["Measured", "Range", "Speed", "Weights", "estimate", "host_reads", "weights_read"]
