"""Double DQN with a dueling network."""

import copy

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)  # the network is small: threads would only wait for each other


class DuelingNet(nn.Module):
    """Observation to the value of each action. The names of the parameters are shared with C++
    (src/rl): encoder.0, encoder.2, ..., value.0, value.2, advantage.0, advantage.2."""

    def __init__(self, obs_shape, action_shape, encoder_hidden_size_list, dueling=True):
        super().__init__()
        sizes = [obs_shape, *encoder_hidden_size_list]
        layers = []
        for size, next_size in zip(sizes, sizes[1:]):
            layers += [nn.Linear(size, next_size), nn.ReLU()]
        last = sizes[-1]
        self.encoder = nn.Sequential(*layers)
        self.advantage = nn.Sequential(nn.Linear(last, last), nn.ReLU(), nn.Linear(last, action_shape))
        self.value = None
        if dueling:
            self.value = nn.Sequential(nn.Linear(last, last), nn.ReLU(), nn.Linear(last, 1))

    def forward(self, obs):
        hidden = self.encoder(obs)
        advantage = self.advantage(hidden)
        if self.value is None:
            return advantage
        return self.value(hidden) + advantage - advantage.mean(dim=-1, keepdim=True)


class DQN:
    """`forward` plays, `learn` trains; `state_dict` is everything that a resumed run needs."""

    def __init__(self, cfg, seed):
        torch.manual_seed(seed)
        learn = cfg.policy.learn
        self.model = DuelingNet(**cfg.policy.model)
        self.target = copy.deepcopy(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=learn.learning_rate)
        self.target_update_freq = learn.target_update_freq
        self.train_iter = 0
        self.env_step = 0  # told by main, for the checkpoint
        self._actions = cfg.policy.model.action_shape
        self._random = np.random.default_rng(seed)

    def forward(self, obs, eps=-1.0):
        """One action for each row; each with probability `eps` a random one."""
        with torch.no_grad():
            best = self.model(torch.as_tensor(np.asarray(obs, np.float32))).argmax(dim=-1).numpy()
        if eps <= 0:
            return best
        explores = self._random.random(len(best)) < eps
        return np.where(explores, self._random.integers(self._actions, size=len(best)), best)

    def learn(self, batch):
        """One update by a dict of arrays (replay.FIELDS); the absolute errors are the priorities."""
        data = {key: torch.as_tensor(np.array(batch[key])) for key in batch if key != "index"}
        action = data["action"].long().unsqueeze(-1)
        with torch.no_grad():
            following = self.model(data["next_observation"]).argmax(dim=-1, keepdim=True)
            value = self.target(data["next_observation"]).gather(-1, following).squeeze(-1)
            wanted = data["reward"] + data["discount"] * data["not_done"] * value
        q = self.model(data["observation"]).gather(-1, action).squeeze(-1)
        errors = q - wanted
        loss = (data.get("weight", 1.0) * errors**2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.train_iter += 1
        if self.train_iter % self.target_update_freq == 0:
            self.target.load_state_dict(self.model.state_dict())
        return {"total_loss": loss.item(), "q_value": q.mean().item(), "priority": errors.detach().abs().numpy()}

    def state_dict(self):
        return {
            "model": self.model.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "train_iter": self.train_iter,
            "env_step": self.env_step,
        }

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.train_iter, self.env_step = state["train_iter"], state["env_step"]
