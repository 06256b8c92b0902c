"""Networks over sequences of tokens."""

from torch import Tensor, nn


class CharLstm(nn.Module):
    """Embedding, stacked LSTM, and a linear layer on its last output, [n, T] -> [n, classes]."""

    def __init__(self, classes: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.lstm(self.embedding(x))[0][:, -1])
        return logits
