"""SLM-Lab's specs: `tenfold train spec.json NAME [dev|train|search|enjoy]`.

    from tenfold.integrations import slm_lab
    spec = slm_lab.read_spec("spec.json", "ppo_cartpole")
    translation = slm_lab.translate(spec)          # settings of ours, and what differs
    ten.train(translation.run)

`spec` reads files, `keys` what each key holds, `networks`, `agents` and `translation` say it in
settings of a run, `spaces` what a search draws from, `strength` measures runs as SLM-Lab does,
`file_form` is the command.
"""

from tenfold.integrations.slm_lab.spec import Spec, read_spec
from tenfold.integrations.slm_lab.translation import Translation, translate

__all__ = ["Spec", "Translation", "read_spec", "translate"]
