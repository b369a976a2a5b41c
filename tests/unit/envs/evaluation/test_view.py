"""What a person sees while a round is prepared."""

from envs.evaluation.view import LiveView


def test_without_a_terminal_each_phase_is_a_line_however_soon_it_follows(capsys):
    with LiveView() as view:
        view.set_phase("vLLM loads the model")
        view.set_phase("the gateway starts")

    assert capsys.readouterr().err == "vLLM loads the model …\nthe gateway starts …\n"
