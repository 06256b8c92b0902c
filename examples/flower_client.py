"""A Flower app like flwr's quickstart with PyTorch: net, client and client_fn, on scikit-learn's digits."""

from collections import OrderedDict
from functools import cache

import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.fc1 = nn.Linear(6 * 3 * 3, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv1(x)), 2)
        return self.fc1(x.flatten(1))


@cache
def digits():
    x, y = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(x, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(y))


def load_data(partition_id, num_partitions):
    """Return this partition's digits: 80 % to train, 20 % to test."""
    data = digits()
    mine = torch.utils.data.Subset(data, range(partition_id, len(data), num_partitions))
    split = [len(mine) - len(mine) // 5, len(mine) // 5]
    train, test = random_split(mine, split, torch.Generator().manual_seed(42))
    return DataLoader(train, batch_size=10, shuffle=True), DataLoader(test, batch_size=64)


def get_weights(net):
    return [val.cpu().numpy() for _, val in net.state_dict().items()]


def set_weights(net, parameters):
    params_dict = zip(net.state_dict().keys(), parameters, strict=True)
    net.load_state_dict(OrderedDict({k: torch.tensor(v) for k, v in params_dict}), strict=True)


class FlowerClient(NumPyClient):
    def __init__(self, net, trainloader, valloader, local_epochs):
        self.net, self.trainloader, self.valloader = net, trainloader, valloader
        self.local_epochs = local_epochs

    def get_parameters(self, config):
        return get_weights(self.net)

    def fit(self, parameters, config):
        set_weights(self.net, parameters)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=config["lr"], momentum=0.9)
        self.net.train()
        for _ in range(self.local_epochs):
            for images, labels in self.trainloader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.net(images), labels)
                loss.backward()
                optimizer.step()
        return get_weights(self.net), len(self.trainloader.dataset), {"train_loss": loss.item()}

    def evaluate(self, parameters, config):
        set_weights(self.net, parameters)
        self.net.eval()
        loss, correct = 0.0, 0
        with torch.no_grad():
            for images, labels in self.valloader:
                outputs = self.net(images)
                loss += nn.functional.cross_entropy(outputs, labels, reduction="sum").item()
                correct += (outputs.argmax(1) == labels).sum().item()
        count = len(self.valloader.dataset)
        return loss / count, count, {"accuracy": correct / count}


def client_fn(context: Context):
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    trainloader, valloader = load_data(partition_id, num_partitions)
    return FlowerClient(Net(), trainloader, valloader, context.run_config["local-epochs"]).to_client()


app = ClientApp(client_fn)
