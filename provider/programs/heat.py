"""The temperature of a rod over time, by conjugate gradients: a solver whose processes exchange borders and sums.

Every process also solves the whole problem alone, with numpy, and compares.
"""

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
left = rank - 1 if rank > 0 else MPI.PROC_NULL
right = rank + 1 if rank + 1 < size else MPI.PROC_NULL

POINTS = 2000 * size
STEPS = 5
CONDUCTION = 3.0


def apply_alone(values):
    result = (1 + 2 * CONDUCTION) * values
    result[1:] -= CONDUCTION * values[:-1]
    result[:-1] -= CONDUCTION * values[1:]
    return result


def apply_together(values):
    borders = numpy.zeros(2)
    requests = [
        world.Irecv(borders[:1], source=left, tag=1),
        world.Irecv(borders[1:], source=right, tag=2),
        world.Isend(values[-1:].copy(), dest=right, tag=1),
        world.Isend(values[:1].copy(), dest=left, tag=2),
    ]
    result = apply_alone(values)
    MPI.Request.Waitall(requests)
    result[0] -= CONDUCTION * borders[0]
    result[-1] -= CONDUCTION * borders[1]
    return result


def solve(apply, dot, wanted):
    solution = numpy.zeros_like(wanted)
    rest = wanted.copy()
    direction = rest.copy()
    square = dot(rest, rest)
    for _ in range(200):
        if square < 1e-20:
            break
        image = apply(direction)
        step = square / dot(direction, image)
        solution += step * direction
        rest -= step * image
        before, square = square, dot(rest, rest)
        direction = rest + square / before * direction
    return solution


def dot_together(one, other):
    return world.allreduce(float(one @ other), op=MPI.SUM)


start = numpy.sin(numpy.arange(POINTS) * 0.01)
alone = start.copy()
part = numpy.array_split(start, size)[rank].copy()
for _ in range(STEPS):
    alone = solve(apply_alone, lambda one, other: float(one @ other), alone)
    part = solve(apply_together, dot_together, part)

whole = numpy.empty(POINTS)
world.Allgather(part, whole)
# Sums of parts are rounded otherwise than a sum of all.
error = float(abs(whole - alone).max())
assert error < 1e-12, error
large = world.alltoall([numpy.full(300_000, rank, dtype=numpy.int64)] * size)
assert all((values == other).all() for other, values in enumerate(large))
if rank == 0:
    print(f"heat: ok, {POINTS} points, error {error:.1e}")
