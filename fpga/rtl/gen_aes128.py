#!/usr/bin/env python3
"""Writes `kernels/aes128_box.vh`: the S-box of AES and its inverse (FIPS 197, section 5.1.1), as gates.

A byte's substitute is its inverse in GF(2^8), modulo x^8 + x^4 + x^3 + x + 1, through an affine map over GF(2); the
other way round it is the map's inverse, then the same inversion. Inverses are cheap in GF(((2^2)^2)^2), a field of pairs
of pairs of pairs (Rijmen, "Efficient implementation of the Rijndael S-box", 2000; Satoh et al., ASIACRYPT 2001), which
is the same field in another basis. So there is one inversion for both directions, between linear maps, and every value
is a vector, one bit of it for each byte that is substituted at the same time. Of all such bases the one is taken whose
maps need the fewest gates; sums that occur in several places are made once (Paar, ISIT 1997).
"""

import itertools
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent / "kernels" / "aes128_box.vh"
ADDED = 0x63


def times(a, b):
    """In the standard's GF(2^8)."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a = (a << 1) ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return product


def rotate(byte, n):
    return ((byte << n) | (byte >> (8 - n))) & 0xFF


def affine(byte):
    """The map of 5.1.1 without what it adds."""
    return byte ^ rotate(byte, 1) ^ rotate(byte, 2) ^ rotate(byte, 3) ^ rotate(byte, 4)


def substitute(byte):
    inverse = next((x for x in range(256) if times(byte, x) == 1), 0)
    return affine(inverse) ^ ADDED


# The tower: an element is a pair, high part first, of elements of the field below; x^2 = x + (that field's constant).
def pair_times(a, b, bits, constants):
    """A product of elements of so many bits; `constants` are those of the fields, the smallest first."""
    if bits == 1:
        return a & b
    half = bits // 2
    below = constants[:-1]
    mask = (1 << half) - 1
    high = pair_times(a >> half, b >> half, half, below)
    low = pair_times(a & mask, b & mask, half, below)
    middle = pair_times((a >> half) ^ (a & mask), (b >> half) ^ (b & mask), half, below)
    return (middle ^ low) << half | (low ^ pair_times(high, constants[-1], half, below))


def fields():
    """Constants of towers that are fields: x^2 + x + c has no root in the field below."""
    for c4 in range(1, 4):
        if any(pair_times(x, x, 2, [1]) ^ x == c4 for x in range(4)):
            continue
        for c8 in range(1, 16):
            if all(pair_times(x, x, 4, [1, c4]) ^ x != c8 for x in range(16)):
                yield [1, c4, c8]


def apply(columns, byte):
    out = 0
    for i, column in enumerate(columns):
        if byte >> i & 1:
            out ^= column
    return out


def inverted(columns):
    """The linear map the other way round."""
    image = {apply(columns, byte): byte for byte in range(256)}
    return [image[1 << i] for i in range(8)]


def bases():
    """Linear maps from the standard's field into a tower, which keep sums and products: (constants, columns)."""
    for constants in fields():
        for root in range(2, 256):
            powers = [1]
            while len(powers) < 9:
                powers.append(pair_times(powers[-1], root, 8, constants))
            # x goes where it is a root of the same polynomial.
            if powers[8] ^ powers[4] ^ powers[3] ^ powers[1] ^ 1 == 0:
                yield constants, powers[:8]


def rows(*maps):
    """Sets of the inputs of which each output is the sum; of several maps, one after the other."""
    return [{i for i in range(8) if columns[i] >> bit & 1} for columns in maps for bit in range(8)]


def both(constants, into):
    """The maps before the inversion and after it, when encrypting and when decrypting."""
    out, straight = inverted(into), [affine(1 << i) for i in range(8)]
    back = inverted(straight)
    return (rows(into, [apply(into, column) for column in back]),
            rows([affine(column) for column in out], out))


class Gates:
    """Statements, each with one operator; the same one is not written twice."""

    def __init__(self):
        self.lines, self.known = [], {}

    def put(self, key, text):
        if key not in self.known:
            name = self.known[key] = f"t[{len(self.known)}]"
            self.lines.append((name, text))
        return self.known[key]

    def add(self, a, b):
        if a is None or b is None:
            return a or b
        if a == b:
            return None
        a, b = sorted((a, b))
        return self.put(("^", a, b), f"{a} ^ {b}")

    def both(self, a, b):
        if a is None or b is None:
            return None
        a, b = sorted((a, b))
        return self.put(("&", a, b), f"{a} & {b}")

    def choose(self, yes, no):
        return yes if yes == no else self.put(("?", yes, no), f"decrypt ? {yes} : {no}")

    def sums(self, inputs, wanted):
        """Of each set of indices the sum; the pair that most sums have is added first, until there are sums of one."""
        inputs, wanted = list(inputs), [set(row) for row in wanted]
        while True:
            counts = {}
            for row in wanted:
                for two in itertools.combinations(sorted(row), 2):
                    counts[two] = counts.get(two, 0) + 1
            if not counts:
                return [inputs[min(row)] if row else None for row in wanted]
            (a, b), _ = max(counts.items(), key=lambda item: (item[1], -item[0][0], -item[0][1]))
            inputs.append(self.add(inputs[a], inputs[b]))
            for row in wanted:
                if {a, b} <= row:
                    row -= {a, b}
                    row.add(len(inputs) - 1)

    # Elements of the tower are lists of names, lowest bit first.
    def plus(self, a, b):
        return [self.add(x, y) for x, y in zip(a, b)]

    def linear(self, a, function):
        """A linear map of the bits of `a`, given as a function of numbers."""
        images = [function(1 << i) for i in range(len(a))]
        return self.sums(a, [{i for i in range(len(a)) if images[i] >> bit & 1} for bit in range(len(a))])

    def product(self, a, b, constants):
        if len(a) == 1:
            return [self.both(a[0], b[0])]
        half = len(a) // 2
        below = constants[:-1]
        high = self.product(a[half:], b[half:], below)
        low = self.product(a[:half], b[:half], below)
        middle = self.product(self.plus(a[half:], a[:half]), self.plus(b[half:], b[:half]), below)
        scaled = self.linear(high, lambda x: pair_times(x, constants[-1], half, below))
        return self.plus(low, scaled) + self.plus(middle, low)

    def inverse(self, a, constants):
        """(h x + l)^-1 = (h x + h + l) / (c h^2 + h l + l^2); in GF(4) it is the square."""
        if len(a) == 2:
            return [self.add(a[0], a[1]), a[1]]
        half = len(a) // 2
        low, high, below = a[:half], a[half:], constants[:-1]
        square = lambda x: pair_times(x, x, half, below)
        scaled = lambda x: pair_times(square(x), constants[-1], half, below)
        norm = self.plus(self.plus(self.linear(high, scaled), self.linear(low, square)), self.product(high, low, below))
        divisor = self.inverse(norm, below)
        return self.product(self.plus(high, low), divisor, below) + self.product(high, divisor, below)


def network(constants, into):
    """The gates; the last eight statements are the outputs, as names."""
    before, after = both(constants, into)
    gates = Gates()
    # When decrypting, what the affine map adds is taken off first: in the tower that turns some bits over.
    ins = gates.sums([f"x[{i}]" for i in range(8)], before)
    turned = apply(into, apply(inverted([affine(1 << i) for i in range(8)]), ADDED))
    chosen = []
    for bit, (straight, back) in enumerate(zip(ins[:8], ins[8:])):
        if turned >> bit & 1:
            back = gates.put(("~", back), f"~{back}")
        chosen.append(gates.choose(back, straight))
    outs = gates.sums(gates.inverse(chosen, constants), after)
    results = []
    for bit, (straight, back) in enumerate(zip(outs[:8], outs[8:])):
        if ADDED >> bit & 1:
            straight = gates.put(("~", straight), f"~{straight}")
        results.append(gates.choose(back, straight))
    return gates, results


def best():
    """The tower and basis with the fewest gates; of equal ones the first."""
    return min((network(*basis) for basis in bases()), key=lambda made: len(made[0].lines))


def value(gates, results, byte, decrypt):
    """What the gates make of a byte."""
    names = {f"x[{i}]": byte >> i & 1 for i in range(8)}
    for name, text in gates.lines:
        words = text.split(" ")
        if words[0] == "decrypt":
            names[name] = names[words[2]] if decrypt else names[words[4]]
        elif words[0].startswith("~"):
            names[name] = 1 - names[words[0][1:]]
        else:
            a, b = names[words[0]], names[words[2]]
            names[name] = a ^ b if words[1] == "^" else a & b
    return sum(names[result] << bit for bit, result in enumerate(results))


def text():
    gates, results = best()
    for byte in range(256):
        assert value(gates, results, byte, False) == substitute(byte)
        assert value(gates, results, substitute(byte), True) == byte
    lines = [*gates.lines, *((f"y[{bit}]", result) for bit, result in enumerate(results))]
    # t[3] is a variable of its own, t3: a memory would be one to the tools.
    lines = [f"        {name} = {what};".replace("[", "").replace("]", "") for name, what in lines]
    names = [f"t{i}" for i in range(len(gates.lines))]
    declared = [f"    reg [LANES-1:0] {', '.join(names[at:at + 16])};" for at in range(0, len(names), 16)]
    head = "    // Written by gen_aes128.py, which says what it is. Included inside of a module.\n"
    return (head + "\n".join(declared) + "\n    always @* begin\n" + "\n".join(lines) + "\n    end\n")


def main():
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text() == text() else f"{FILE.name} is not what gen_aes128.py writes")
    FILE.write_text(text())


if __name__ == "__main__":
    main()
