"""Every action by keyboard; F1 shows this list."""

from __future__ import annotations

import dataclasses

import dearpygui.dearpygui as dpg


@dataclasses.dataclass(frozen=True)
class Key:
    """A key, with modifiers, and the method of the window that it calls."""

    key: int
    shown: str
    action: str
    what: str
    ctrl: bool = False
    shift: bool = False
    argument: str = ""


def table() -> tuple[Key, ...]:
    """All keys; needs Dear PyGui's constants only."""
    return (
        Key(dpg.mvKey_F1, "F1", "toggle_help", "this list"),
        Key(dpg.mvKey_O, "Ctrl+O", "ask_open", "open a .vqz or a pair of models", ctrl=True),
        Key(dpg.mvKey_S, "Ctrl+S", "ask_save", "save as .vqz or .json", ctrl=True),
        Key(dpg.mvKey_F12, "F12", "picture", "picture of the window as PNG"),
        Key(dpg.mvKey_F, "Ctrl+F", "focus_search", "search", ctrl=True),
        Key(dpg.mvKey_Slash, "/", "focus_search", "search"),
        Key(dpg.mvKey_Return, "Enter", "next_match", "next match"),
        Key(dpg.mvKey_Return, "Shift+Enter", "previous_match", "match before", shift=True),
        Key(dpg.mvKey_Escape, "Esc", "escape", "clear the selection; cancel work"),
        Key(dpg.mvKey_Spacebar, "Space", "fit", "fit both graphs"),
        Key(dpg.mvKey_G, "G", "go_to_selection", "go to the selection"),
        Key(dpg.mvKey_Up, "Up", "walk", "along an edge, upwards", argument="up"),
        Key(dpg.mvKey_Down, "Down", "walk", "along an edge, downwards", argument="down"),
        Key(dpg.mvKey_Left, "Left", "walk", "the next node to the left", argument="left"),
        Key(dpg.mvKey_Right, "Right", "walk", "the next node to the right", argument="right"),
        Key(dpg.mvKey_Tab, "Tab", "other_side", "to the counterpart on the other side"),
        Key(dpg.mvKey_Z, "Ctrl+Z", "undo", "the selection before", ctrl=True),
        Key(dpg.mvKey_Y, "Ctrl+Y", "redo", "the selection after", ctrl=True),
        Key(dpg.mvKey_Plus, "+", "zoom_in", "zoom in"),
        Key(dpg.mvKey_Minus, "-", "zoom_out", "zoom out"),
        Key(dpg.mvKey_P, "P", "toggle_plumbing", "Q/DQ plumbing shown or hidden"),
        Key(dpg.mvKey_X, "X", "toggle_fusion", "the selected fusion as one box, or open"),
        Key(dpg.mvKey_X, "Shift+X", "toggle_all_fusions", "all fusions", shift=True),
        Key(dpg.mvKey_M, "M", "toggle_module", "the module of the selection as one box, or open"),
        Key(dpg.mvKey_M, "Shift+M", "toggle_all_modules", "all modules", shift=True),
        Key(dpg.mvKey_E, "E", "enter", "enter the sub-graph of the selected node"),
        Key(dpg.mvKey_Back, "Backspace", "leave", "leave the sub-graph"),
        Key(dpg.mvKey_C, "C", "next_metric", "colour by the next metric", argument="1"),
        Key(dpg.mvKey_C, "Shift+C", "next_metric", "colour by the metric before", shift=True, argument="-1"),
        Key(dpg.mvKey_W, "W", "walk_through", "look into the selected weight: one number, all channels"),
        Key(dpg.mvKey_L, "L", "toggle_linked", "linked pan and zoom on or off"),
        Key(dpg.mvKey_D, "D", "toggle_dim", "fade what is unrelated, or not"),
        Key(dpg.mvKey_S, "S", "swap", "swap the panes"),
        Key(dpg.mvKey_B, "B", "toggle_tables", "panel of tables shown or hidden"),
        Key(dpg.mvKey_I, "I", "toggle_details", "panel of details shown or hidden"),
        Key(dpg.mvKey_T, "T", "toggle_theme", "dark or light"),
        Key(dpg.mvKey_Q, "Ctrl+Q", "quit", "leave", ctrl=True),
    )


VIEWS = "1 … 9 recall a view, Ctrl+1 … Ctrl+9 save one"
MOUSE = (
    ("click", "select a node; the counterpart is marked on the other side"),
    ("double click", "open or close a module or a fusion, enter a sub-graph"),
    ("drag", "pan"),
    ("wheel", "zoom at the pointer"),
    ("Ctrl + drag", "zoom to a rectangle"),
)
