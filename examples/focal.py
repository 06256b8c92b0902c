"""The focal loss (Lin et al. 2017, eq. 4), which gives weight to samples that a model finds hard."""

from pydantic import Field

from simfl.learning.losses import Loss


class Focal(Loss):
    """(1 - p)^gamma times the cross-entropy -log p of a label's probability p."""

    gamma: float = Field(2.0, ge=0)

    def __call__(self, logits, y):
        log_p = logits.log_softmax(1).gather(1, y[:, None]).squeeze(1)
        return -((1 - log_p.exp()) ** self.gamma) * log_p
