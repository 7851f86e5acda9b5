from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner


class FusedPPOTorchLearner(PPOTorchLearner):
    pass
