"""How trained weights reach veRL's vLLM servers, and which of them serve a version.

Without a GPU veRL and vLLM import the transfer, and the receiver, by their paths.
"""
