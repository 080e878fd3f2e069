"""Every drawing, by matplotlib: of studies, audits, selections, tunings and images.

`style` has what all share, and writes figures to files and into pages. The others draw: `charts`
what runs measured, `circles` what becomes of answers as images turn, `sheets` pictures in rows,
`selections` monomials and how they were chosen, `trials` the search for hyper-parameters.
"""
