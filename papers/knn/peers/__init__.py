"""Peers that answer k-NN queries together, simulated message by message (D-ZaLaPS, section 6).

==============  ============================================================================
``settings``    what a run is
``data``        points: uniform, clustered, sensor readings
``overlay``     CAN zones over the cells of a grid; peers join and depart
``selective``    cells of interest of queries, mergers of peers
``passage``     objects through the peers, with PA or RAPF
``network``     all of it together, and the counts of messages
``runs``        one run; the errors of PA
``figures``     figures 8 to 16 of the paper, and more
``drawing``     the same as pictures
==============  ============================================================================
"""

from papers.knn.peers.network import MESSAGES, Network
from papers.knn.peers.settings import DATA, METHODS, PeerSettings

__all__ = ["DATA", "MESSAGES", "METHODS", "Network", "PeerSettings"]
