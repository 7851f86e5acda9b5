"""What of hidden dynamics is public: `ten.Explorer`, `ten.fit`, `ten.compare`, …"""

from tenfold.domains.dynamics.compare import compare as compare
from tenfold.domains.dynamics.config import Explorer as Explorer
from tenfold.domains.dynamics.config import LatentModel as LatentModel
from tenfold.domains.dynamics.config import Planner as Planner
from tenfold.domains.dynamics.model_metrics import bits_per_spike as bits_per_spike
from tenfold.domains.dynamics.offline import fit as fit
