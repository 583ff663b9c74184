"""Write the files below share/."""

from pathlib import Path

from tools.command_line import generate

for name, text in generate().items():
    path = Path(__file__).resolve().parents[2] / "share" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
