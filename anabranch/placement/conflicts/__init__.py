"""Devices that want the same views.

==============  =============================================================================
`resolution`    one place for every view; conflicts are found and resolved
`cover`         ... in one level: trees and linear programs
==============  =============================================================================
"""
