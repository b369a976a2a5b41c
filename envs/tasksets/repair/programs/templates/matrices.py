"""Matrices of whole numbers."""

from random import Random

from envs.tasksets.repair.programs.template import Case, Template, call

_SOURCE = '''\
"""Matrices of whole numbers, as lists of rows."""


def transpose(matrix):
    """Return the columns as rows."""
    return [list(column) for column in zip(*matrix)]


def multiply(left, right):
    """Return the product of two matrices."""
    if len(left[0]) != len(right):
        raise ValueError("columns of the left and rows of the right differ")
    columns = transpose(right)
    return [[sum(a * b for a, b in zip(row, column)) for column in columns] for row in left]


def power(matrix, exponent):
    """Return the matrix times itself; exponent 0 gives ones on the diagonal."""
    if exponent < 0:
        raise ValueError("the exponent is negative")
    size = len(matrix)
    result = [[1 if row == column else 0 for column in range(size)] for row in range(size)]
    base = matrix
    while exponent > 0:
        if exponent % 2 == 1:
            result = multiply(result, base)
        base = multiply(base, base)
        exponent //= 2
    return result


def determinant(matrix):
    """Return the determinant, by the first row."""
    if len(matrix) == 1:
        return matrix[0][0]
    total = 0
    sign = 1
    for index, factor in enumerate(matrix[0]):
        minor = [row[:index] + row[index + 1:] for row in matrix[1:]]
        total += sign * factor * determinant(minor)
        sign = -sign
    return total


def spiral(matrix):
    """Return all numbers, clockwise from the upper left corner inwards."""
    numbers = []
    rest = [list(row) for row in matrix]
    while rest:
        numbers.extend(rest[0])
        rest = transpose(rest[1:])[::-1]
    return numbers
'''

_INDEPENDENT = """\
def transpose(matrix):
    if len(matrix) == 0:
        return []
    width = min(len(row) for row in matrix)
    return [[row[at] for row in matrix] for at in range(width)]


def multiply(left, right):
    if not len(right) == len(left[0]):
        raise ValueError((left, right))
    product = []
    for i in range(len(left)):
        product.append([])
        for j in range(len(right[0])):
            cell = 0
            for k in range(len(right)):
                cell += left[i][k] * right[k][j]
            product[i].append(cell)
    return product


def power(matrix, exponent):
    if not exponent >= 0:
        raise ValueError(exponent)
    product = [[int(i == j) for j in range(len(matrix))] for i in range(len(matrix))]
    for _ in range(exponent):
        product = multiply(matrix, product)
    return product


def determinant(matrix):
    size = len(matrix)
    orders = [([], 1)]
    for _ in range(size):
        grown = []
        for order, sign in orders:
            for candidate in range(size):
                if candidate not in order:
                    larger = len([one for one in order if one > candidate])
                    grown.append((order + [candidate], sign * (-1) ** larger))
        orders = grown
    total = 0
    for order, sign in orders:
        product = sign
        for row, column in enumerate(order):
            product *= matrix[row][column]
        total += product
    return total


def spiral(matrix):
    if not matrix or not matrix[0]:
        return []
    top, left, bottom, right = 0, 0, len(matrix) - 1, len(matrix[0]) - 1
    seen = []
    while top <= bottom and left <= right:
        seen += [matrix[top][at] for at in range(left, right + 1)]
        seen += [matrix[at][right] for at in range(top + 1, bottom + 1)]
        if top < bottom:
            seen += [matrix[bottom][at] for at in range(right - 1, left - 1, -1)]
            if left < right:
                seen += [matrix[at][left] for at in range(bottom - 1, top, -1)]
        top, left, bottom, right = top + 1, left + 1, bottom - 1, right - 1
    return seen
"""


def _draw_matrix(rng: Random, rows: int, columns: int) -> list[list[int]]:
    return [[rng.randrange(-4, 6) for _ in range(columns)] for _ in range(rows)]


def _draw(rng: Random) -> Case:
    kind = rng.randrange(6)
    if kind == 0:
        return [call("transpose", _draw_matrix(rng, rng.randrange(1, 4), rng.randrange(1, 4)))]
    if kind == 1:
        inner = rng.randrange(1, 4)
        right = _draw_matrix(rng, inner if rng.random() < 0.9 else inner + 1, rng.randrange(1, 4))
        return [call("multiply", _draw_matrix(rng, rng.randrange(1, 4), inner), right)]
    if kind == 2:
        size = rng.randrange(1, 4)
        return [call("power", _draw_matrix(rng, size, size), rng.randrange(-1 if rng.random() < 0.2 else 0, 6))]
    if kind == 3:
        size = rng.randrange(1, 5)
        return [call("determinant", _draw_matrix(rng, size, size))]
    return [call("spiral", _draw_matrix(rng, rng.randrange(1, 5), rng.randrange(1, 5)))]


MATRICES = Template(
    name="matrices",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "transpose": ("transpose", "flip", "columns_of"),
        "multiply": ("multiply", "product_of", "times"),
        "power": ("power", "raise_to", "repeated_product"),
        "determinant": ("determinant", "det", "signed_volume"),
        "spiral": ("spiral", "unwind", "snail"),
        "matrix": ("matrix", "table", "grid"),
        "exponent": ("exponent", "degree", "count"),
        "minor": ("minor", "smaller", "submatrix"),
        "factor": ("factor", "entry", "weight"),
    },
    draw=_draw,
    edges=[
        [call("transpose", [])],
        [call("transpose", [[1, 2, 3]])],
        [call("multiply", [[1, 2]], [[3], [4]])],
        [call("multiply", [[1, 2]], [[3, 4]])],
        [call("multiply", [[2]], [[3, 4]])],
        [call("power", [[2]], 0)],
        [call("power", [[2, 1], [0, 1]], -1)],
        [call("power", [[1, 1], [1, 0]], 1)],
        [call("power", [[1, 1], [1, 0]], 8)],
        [call("power", [[1, 2], [3, 4]], 3)],
        [call("determinant", [[7]])],
        [call("determinant", [[1, 2], [3, 4]])],
        [call("determinant", [[2, 0, 1], [1, 3, 2], [1, 1, 4]])],
        [call("determinant", [[1, 2, 3, 1], [0, 1, 4, 2], [5, 6, 0, 1], [1, 0, 2, 3]])],
        [call("spiral", [])],
        [call("spiral", [[1, 2, 3], [4, 5, 6], [7, 8, 9]])],
        [call("spiral", [[1], [2], [3]])],
        [call("spiral", [[1, 2], [3, 4], [5, 6]])],
    ],
)
