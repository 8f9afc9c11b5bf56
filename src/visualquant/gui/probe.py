"""`python -m visualquant.gui.probe` prints the renderer that a window has; it may die where there is none."""

from __future__ import annotations

import sys


def main() -> None:
    """Opens a window that stays hidden for one frame."""
    from visualquant.gui.display import current_renderer, require_display

    require_display()
    import dearpygui.dearpygui as dpg

    dpg.create_context()
    dpg.create_viewport(title="visualquant", width=250, height=250, x_pos=-2000)
    dpg.setup_dearpygui()
    dpg.show_viewport(minimized=True)
    dpg.render_dearpygui_frame()
    sys.stdout.write(current_renderer() + "\n")
    dpg.destroy_context()


if __name__ == "__main__":
    main()
