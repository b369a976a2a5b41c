# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .engines.models import read_model_names as read_model_names
from .http.bind import check_exposure as check_exposure, load_tls as load_tls
from .http.server import serve_until_stopped as serve_until_stopped
from .serving import listen as listen, serve_gateway as serve_gateway
