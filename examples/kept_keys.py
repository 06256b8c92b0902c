"""Masks that repeat in every round, as MicroSecAgg's were predictable: a fault that a privacy proof finds."""

from dataclasses import replace

from simfl.protocols.assistants import Assistants, AssistedClient, AssistedServer
from simfl.protocols.long_term_keys import Memory


class KeptKeys(Assistants):
    """The first users assist in every round; all keep their keys, so that masks repeat: broken."""

    def params(self, p):
        return replace(super().params(p), memory=Memory())

    def client(self, user, p, ops, entropy):
        kept = p.memory.of(user)

        def remembered(name):
            return kept[name] if name in kept else kept.setdefault(name, entropy(name))

        return AssistedClient(user, p, ops, remembered)

    def server(self, users, p, ops, entropy):
        return AssistedServer(users, sorted(users)[: p.m], p, ops)
