"""`bisect-train cache verify`: is what is kept still whole, and still true?"""

from __future__ import annotations

import rich_click as click

from bisect_train.cli.checking import check_cache
from bisect_train.cli.desk import open_desk
from bisect_train.cli.finding_list import say_findings
from bisect_train.cli.rerunning import rerun
from bisect_train.cli.stock import take_stock


@click.command("verify")
@click.option("--rerun", "num", type=click.IntRange(min=0), default=0, metavar="N", help="Run so many probes again, too.")
def command(num: int) -> int:
    """Check what is kept: database, results and their keys, git objects, packages, what dead runs have left behind.

    With --rerun, stored probes of this hardware and interpreter that are known to repeat bitwise are run again, each in a
    fresh process, and compared with what is stored: everything a result depends on outside git, data and packages shows here.

    \b
    Examples:
      bisect-train cache verify
      bisect-train cache verify --rerun 3

    \b
    Exit status: 0 all is well, 1 something is not; the line below it says what mends it.
    """
    stock = take_stock()
    num_bad = say_findings(check_cache(stock))
    if num and not num_bad and stock.bisections:
        with open_desk() as desk:
            num_bad += say_findings(rerun(desk, stock, num))
    elif num:
        click.echo("nothing is run again: " + ("put right what is above first" if num_bad else "no bisection is stored"))
    click.echo("all is well" if num_bad == 0 else f"{num_bad} of these need attention")
    return 1 if num_bad else 0
