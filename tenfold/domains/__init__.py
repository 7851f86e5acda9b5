"""Fields of work, one folder each: environments, rules, evaluation, settings, presets and pages of
one field. Their public names are here for type checkers; `PUBLIC` of each folder has them for
everybody else."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dynamics.compare import compare as compare
    from .dynamics.config import Explorer as Explorer
    from .dynamics.config import LatentModel as LatentModel
    from .dynamics.config import Planner as Planner
    from .dynamics.model_metrics import bits_per_spike as bits_per_spike
    from .dynamics.offline import fit as fit
    from .jobshop.instances import Instance as Instance
    from .jobshop.instances import lower_bound as lower_bound
    from .jobshop.instances import random_shop as random_shop
    from .jobshop.players import dispatch as dispatch
    from .jobshop.reading import read_instance as read_instance
    from .jobshop.reading import read_instances as read_instances
    from .jobshop.reading import suite as suite
    from .jobshop.reading import write_instance as write_instance
    from .jobshop.schedule import check_schedule as check_schedule
    from .jobshop.schedule import schedule_of_order as schedule_of_order
    from .jobshop.tables import ShopTable as ShopTable
    from .jobshop.tables import compare_players as compare_players
