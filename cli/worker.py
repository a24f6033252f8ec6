"""``tilewright worker``: measure candidates for tuners on other machines."""

from __future__ import annotations

import click

from .output import CommandError


@click.command("worker")
@click.argument("address")
def command(address: str) -> int:
    """Offer this machine to the scheduler at ADDRESS, such as host:8786, and measure what `tilewright tune --runner
    dask://host:8786` sends.

    A scheduler is started with `dask scheduler`. It measures one candidate at a time, and runs until it is interrupted. Whoever
    reaches the scheduler can run code on this machine: use tls:// addresses outside a network that you trust.
    """
    from ..tuner.remote.measuring import offered, run_worker

    try:
        click.echo(f"offers {', '.join(offered())} to {address}", err=True)
        run_worker(address)
    except ModuleNotFoundError:
        raise CommandError("a worker needs Dask.distributed", "pip install 'tilewright[remote]'") from None
    except (OSError, TimeoutError) as error:
        raise CommandError(f"no scheduler answers at {address}: {error}") from None
    return 0
