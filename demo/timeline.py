"""Draws who had the lock of a sale, and who waited for it, as SVG.

usage: python3 timeline.py ITEM CUSTOMERS <DATA >SVG
A line of DATA is "SHOP order SECONDS", an order that was written under the lock,
or "SHOP wait SECONDS SESSIONS", how many sessions of the shop waited then.
"""
import sys
from collections import defaultdict
from html import escape

WIDTH, LEFT, RIGHT = 860, 70, 20
LANE = 66                       # height of a shop's lane,
HIGH = 36                       # and of what waits in it
TURNS = 16                      # that the lower part shows, about
COLORS = ['#4a86c8', '#d07a2e', '#5a9e5a']

STYLE = '''
  text { font: 12px sans-serif; fill: #333 }
  .title { font-size: 15px; font-weight: bold }
  .small { font-size: 10px }
  .line { stroke: #888; stroke-width: 1; fill: none }
  .waits { fill-opacity: .35; stroke-width: 1 }
  @media (prefers-color-scheme: dark) { text { fill: #ddd } }
'''


def read(lines):
    orders, waits = [], defaultdict(list)
    for line in lines:
        shop, kind, at, *rest = line.split()
        if kind == 'order':
            orders.append((float(at), shop))
        else:
            waits[shop].append((float(at), int(rest[0])))
    for seen in waits.values():
        seen.sort()
    return sorted(orders), waits


def turns_of(orders):
    """Orders in time as turns: [shop, [times]], until another shop has the lock."""
    turns = []
    for at, shop in orders:
        if not turns or turns[-1][0] != shop:
            turns.append([shop, []])
        turns[-1][1].append(at)
    return turns


class Part:
    """A lane for each shop, from time begin to end."""

    def __init__(self, top, begin, end, shops, most):
        self.top, self.begin, self.end = top, begin, end
        self.shops, self.most = shops, most
        self.out = []

    def x(self, at):
        at = min(max(at, self.begin), self.end)
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - self.begin) / (self.end - self.begin)

    def bottom(self, shop):
        return self.top + (LANE + 14) * (self.shops.index(shop) + 1) - 14

    def bar(self, shop):
        return self.bottom(shop) - LANE + 12

    def text(self, x, y, text, kind='', anchor='start'):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" '
                        f'text-anchor="{anchor}">{escape(text)}</text>')

    def axis(self, unit, scale):
        """Marks below, at about eight round numbers of a unit of 1/scale s."""
        bottom = self.bottom(self.shops[-1]) + 4
        length = (self.end - self.begin) * scale
        step = next(s for s in (n * 10 ** e for e in range(-2, 9) for n in (1, 2, 5))
                    if length / s <= 8)
        self.out.append(f'<path class="line" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>')
        for n in range(int(length / step) + 1):
            x = self.x(self.begin + n * step / scale)
            self.out.append(f'<path class="line" d="M{x:.1f} {bottom}v4"/>')
            self.text(x, bottom + 16, f'{n * step:g} {unit}', 'small', 'middle')

    def lane(self, shop, label):
        bottom = self.bottom(shop)
        self.out.append(f'<path class="line" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>')
        self.text(LEFT - 8, bottom - 2, '0', 'small', 'end')
        self.text(LEFT - 8, bottom - HIGH + 6, str(self.most), 'small', 'end')
        self.text(4, bottom - LANE + 20, shop)
        self.text(WIDTH - RIGHT, bottom - LANE + 6, label, 'small', 'end')

    def waiting(self, shop, seen, color):
        """The sessions that wait, as steps; the mean, where steps are too many."""
        bottom = self.bottom(shop)
        before = [s for s in seen if s[0] < self.begin][-1:]
        inside = before + [s for s in seen if self.begin <= s[0] <= self.end]
        n = max(1, len(inside) // 400)
        path = []
        for i in range(0, len(inside), n):
            some = inside[i:i + n]
            y = bottom - HIGH * sum(w for _, w in some) / len(some) / self.most
            path.append(f'H{self.x(some[0][0]):.1f}V{y:.1f}')
        if path:
            self.out.append(f'<path class="waits" fill="{color}" stroke="{color}" '
                            f'd="M{self.x(inside[0][0]):.1f} {bottom}{"".join(path)}'
                            f'H{self.x(self.end):.1f}V{bottom}Z"/>')

    def shares(self, shop, orders, color):
        """How much of the sales was this shop's, the stronger the more."""
        n = 150
        step = (self.end - self.begin) / n
        count = defaultdict(lambda: [0, 0])
        for at, by in orders:
            some = count[min(int((at - self.begin) / step), n - 1)]
            some[0] += by == shop
            some[1] += 1
        width = (WIDTH - LEFT - RIGHT) / n
        for i, (mine, all_) in sorted(count.items()):
            if mine:
                self.out.append(f'<rect x="{LEFT + i * width:.1f}" y="{self.bar(shop)}" '
                                f'width="{width:.2f}" height="8" fill="{color}" '
                                f'fill-opacity="{mine / all_:.2f}"/>')

    def holding(self, turns, colors):
        """A bar for each turn, with a mark for each sale."""
        for shop, times in turns:
            if times[-1] < self.begin or times[0] > self.end:
                continue
            y, x = self.bar(shop), self.x(times[0])
            width = max(3, self.x(times[-1]) - x)
            self.out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="8" '
                            f'rx="1" fill="{colors[shop]}"/>')
            marks = ''.join(f'M{self.x(t):.1f} {y - 2}v12' for t in times
                            if self.begin <= t <= self.end)
            self.out.append(f'<path stroke="{colors[shop]}" d="{marks}"/>')


def draw(item, customers, orders, waits):
    shops = sorted({shop for _, shop in orders} | set(waits))
    colors = dict(zip(shops, COLORS))
    most = max([1] + [w for seen in waits.values() for _, w in seen])
    begin, end = orders[0][0], orders[-1][0]
    turns = turns_of(orders)
    middle = len(turns) // 2
    some = turns[max(0, middle - TURNS // 2):middle + TURNS // 2]
    height = (LANE + 14) * len(shops)

    whole = Part(62, begin, max(end, begin + 0.001), shops, most)
    close = Part(62 + height + 74, some[0][1][0] - 0.001,
                 max(some[-1][1][-1], some[0][1][0]) + 0.001, shops, most)

    whole.text(4, 20, f'{len(orders)} {item}s, {customers} customers at a time, one lock', 'title')
    whole.text(4, 42, 'The whole sale: the bar, which shop sold, the stronger the more;'
               ' below it, how many of its sessions waited')
    close.text(4, close.top - 14, f'{(close.end - close.begin) * 1000:.0f} ms of it: a bar is a turn'
               ' of one shop with the lock, a mark in it is a sale')
    for shop in shops:
        mine = [turn for turn in turns if turn[0] == shop]
        sold = sum(len(times) for _, times in mine)
        whole.shares(shop, orders, colors[shop])
        whole.waiting(shop, waits[shop], colors[shop])
        whole.lane(shop, f'{sold} sales in {len(mine)} turns')
        close.waiting(shop, waits[shop], colors[shop])
        close.lane(shop, '')
    close.holding(turns, colors)
    whole.axis('s', 1)
    close.axis('ms', 1000)
    total = close.bottom(shops[-1]) + 30
    return '\n'.join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" '
        f'width="{WIDTH}" height="{total}">',
        f'<style>{STYLE}</style>', *whole.out, *close.out, '</svg>'])


if __name__ == '__main__':
    orders, waits = read(sys.stdin)
    if not orders:
        sys.exit('timeline.py: there is no order')
    print(draw(sys.argv[1], sys.argv[2], orders, waits))
