"""What of job shops is public: `ten.read_instance`, `ten.check_schedule`, …"""

from tenfold.domains.jobshop.classics import suite as suite
from tenfold.domains.jobshop.instances import Instance as Instance
from tenfold.domains.jobshop.instances import lower_bound as lower_bound
from tenfold.domains.jobshop.instances import random_shop as random_shop
from tenfold.domains.jobshop.orders import schedule_of_order as schedule_of_order
from tenfold.domains.jobshop.reading import read_instance as read_instance
from tenfold.domains.jobshop.reading import read_instances as read_instances
from tenfold.domains.jobshop.reading import write_instance as write_instance
from tenfold.domains.jobshop.schedule import check_schedule as check_schedule
from tenfold.domains.jobshop.schedule import dispatch as dispatch
from tenfold.domains.jobshop.tables import ShopTable as ShopTable
from tenfold.domains.jobshop.tables import compare_players as compare_players
