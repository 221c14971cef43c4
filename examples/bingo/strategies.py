"""Strategies of a team: the choice among the open tiles. Each strategy is a function of the board
and the finished tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from facts import UNLOCK_POINTS, Board, Tile

Strategy = Callable[[Board, Sequence[bool], Sequence[int]], list[Tile]]


def greedy(board: Board, done: Sequence[bool], row_points: Sequence[int]) -> list[Tile]:
    """Tiles with the most points for an hour first."""
    tiles = [tile for row in board.rows[: len(row_points)] for tile in row if not done[tile.index]]
    return sorted(tiles, key=lambda tile: -tile.value)


def rows(board: Board, done: Sequence[bool], row_points: Sequence[int]) -> list[Tile]:
    """First whatever gives most points for an hour in the newest row, until the next one is
    unlocked.
    """
    newest = len(row_points) - 1
    return sorted(greedy(board, done, row_points), key=lambda tile: tile.row != newest)


def combo(board: Board, done: Sequence[bool], row_points: Sequence[int]) -> list[Tile]:
    """First those tiles of the newest row that together unlock the next one with the least work."""
    newest = len(row_points) - 1
    plan = greedy(board, done, row_points)
    if row_points[newest] >= UNLOCK_POINTS:
        return plan
    left = [[tile for tile in tiles if not done[tile.index]] for tiles in board.combinations[newest]]
    chosen = min(left, key=lambda tiles: sum(tile.hours for tile in tiles))
    return chosen + [tile for tile in plan if tile not in chosen]


STRATEGIES: dict[str, Strategy] = {"greedy": greedy, "rows": rows, "combo": combo}
