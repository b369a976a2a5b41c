# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .addresses import announce_page as announce_page, find_page as find_page
from .app import build_view_app as build_view_app
from .demo.recording import open_recording as open_recording
from .links import Thing as Thing, link_to as link_to, make_link as make_link
from .reads.archive import find_cooled as find_cooled
from .reads.params import RequestParams as RequestParams, query_parameters as query_parameters
from .reads.source import Cooled as Cooled, ReadContext as ReadContext
from .site.writer import Selection as Selection, write_site as write_site
