"""Fonts and the two themes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import dearpygui.dearpygui as dpg

FONT = Path(__file__).parent / "fonts" / "wqy-microhei-subset.ttf"
UI_PIXELS = 16
CANVAS_PIXELS = 26
Colour = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class Look:
    """Colours of the canvas under one theme."""

    name: str
    back: Colour
    panel: Colour
    raised: Colour
    text: Colour
    faint: Colour
    edge: Colour
    unmeasured: Colour
    outline: Colour
    terminal: Colour
    selected: Colour
    sibling: Colour
    hovered: Colour
    frame: Colour
    alarm: Colour


DARK = Look(
    name="dark",
    back=(24, 26, 31, 255),
    panel=(33, 36, 42, 255),
    raised=(54, 59, 69, 255),
    text=(226, 230, 236, 255),
    faint=(150, 157, 168, 255),
    edge=(120, 128, 142, 255),
    unmeasured=(48, 52, 61, 255),
    outline=(110, 118, 132, 255),
    terminal=(38, 60, 62, 255),
    selected=(255, 140, 255, 255),
    sibling=(255, 140, 255, 255),
    hovered=(255, 255, 255, 255),
    frame=(90, 96, 108, 90),
    alarm=(255, 120, 110, 255),
)
LIGHT = Look(
    name="light",
    back=(250, 250, 252, 255),
    panel=(240, 241, 244, 255),
    raised=(218, 221, 227, 255),
    text=(28, 31, 37, 255),
    faint=(92, 98, 110, 255),
    edge=(128, 134, 146, 255),
    unmeasured=(228, 230, 235, 255),
    outline=(140, 146, 158, 255),
    terminal=(205, 226, 226, 255),
    selected=(160, 0, 160, 255),
    sibling=(160, 0, 160, 255),
    hovered=(0, 0, 0, 255),
    frame=(170, 175, 186, 90),
    alarm=(176, 24, 18, 255),
)
LOOKS = {"dark": DARK, "light": LIGHT}


def make_theme(look: Look, scale: float) -> Any:
    """The Dear PyGui theme of a look."""
    with dpg.theme() as theme, dpg.theme_component(dpg.mvAll):
        for target, colour in (
            (dpg.mvThemeCol_WindowBg, look.panel),
            (dpg.mvThemeCol_ChildBg, look.panel),
            (dpg.mvThemeCol_PopupBg, look.panel),
            (dpg.mvThemeCol_MenuBarBg, look.panel),
            (dpg.mvThemeCol_Text, look.text),
            (dpg.mvThemeCol_TextDisabled, look.faint),
            (dpg.mvThemeCol_FrameBg, look.raised),
            (dpg.mvThemeCol_FrameBgHovered, look.raised),
            (dpg.mvThemeCol_Button, look.raised),
            (dpg.mvThemeCol_ButtonHovered, look.outline),
            (dpg.mvThemeCol_Header, look.raised),
            (dpg.mvThemeCol_HeaderHovered, look.raised),
            (dpg.mvThemeCol_HeaderActive, look.outline),
            (dpg.mvThemeCol_Tab, look.panel),
            (dpg.mvThemeCol_TabHovered, look.outline),
            (dpg.mvThemeCol_TabActive, look.raised),
            (dpg.mvThemeCol_Border, look.raised),
            (dpg.mvThemeCol_TitleBg, look.raised),
            (dpg.mvThemeCol_TitleBgActive, look.raised),
            (dpg.mvThemeCol_TableHeaderBg, look.raised),
            (dpg.mvThemeCol_TableRowBg, look.panel),
            (dpg.mvThemeCol_TableRowBgAlt, look.back),
            (dpg.mvThemeCol_TableBorderLight, look.raised),
            (dpg.mvThemeCol_ScrollbarBg, look.panel),
            (dpg.mvThemeCol_ScrollbarGrab, look.outline),
            (dpg.mvThemeCol_CheckMark, look.text),
            (dpg.mvThemeCol_SliderGrab, look.outline),
        ):
            dpg.add_theme_color(target, colour)
        for target, colour in (
            (dpg.mvPlotCol_PlotBg, look.back),
            (dpg.mvPlotCol_FrameBg, look.panel),
            (dpg.mvPlotCol_LegendBg, look.panel),
            (dpg.mvPlotCol_LegendText, look.text),
            (dpg.mvPlotCol_AxisText, look.text),
            (dpg.mvPlotCol_TitleText, look.text),
        ):
            dpg.add_theme_color(target, colour, category=dpg.mvThemeCat_Plots)
        dpg.add_theme_style(dpg.mvPlotStyleVar_FitPadding, 0.03, 0.12, category=dpg.mvThemeCat_Plots)
        dpg.add_theme_style(dpg.mvStyleVar_WindowPadding, 6 * scale, 6 * scale)
        dpg.add_theme_style(dpg.mvStyleVar_ItemSpacing, 6 * scale, 4 * scale)
        dpg.add_theme_style(dpg.mvStyleVar_FramePadding, 5 * scale, 3 * scale)
        dpg.add_theme_style(dpg.mvStyleVar_FrameRounding, 3 * scale)
        dpg.add_theme_style(dpg.mvStyleVar_ScrollbarSize, 12 * scale)
        dpg.add_theme_style(dpg.mvStyleVar_CellPadding, 5 * scale, 2 * scale)
    return theme


def load_fonts(scale: float) -> tuple[Any, Any]:
    """The font of controls and that of the canvas; glyphs of any script are drawn when they are first needed."""
    with dpg.font_registry():
        fonts = [dpg.add_font(str(FONT), round(pixels * scale)) for pixels in (UI_PIXELS, CANVAS_PIXELS)]
    return fonts[0], fonts[1]
