"""What can really be had on this machine: host memory and devices.

`survey` asks every backend (a file in `backends/`, found by its name) in child processes (`ask`,
`child`), where `measure` takes and touches memory. `report` is the document, `notes` its words,
`advice` what to plan with, `remember` the last one.
"""
