"""What each device would choose for itself.

==============  =============================================================================
`optima`        every device by the cheapest method that is exact for it
`prefix`        ... where nothing is shared, in one level
`candidates`    ... in several levels
`mincut`        ... where downloads are shared
`program`       ... within capacities: integer programs and local search
==============  =============================================================================
"""
