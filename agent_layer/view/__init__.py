"""The page over the store, and its HTTP API under ``/api/v1``: what was seen, said, judged and learned."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "addresses": "announce_page find_page",
        "app": "build_view_app",
        "demo.recording": "open_recording",
        "links": "Thing link_to make_link",
        "reads.archive": "find_cooled",
        "reads.params": "RequestParams query_parameters",
        "reads.source": "Cooled ReadContext",
        "site.writer": "Selection write_site",
    },
)
