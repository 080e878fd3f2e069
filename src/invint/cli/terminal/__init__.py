"""What commands do and show. Imported when one runs: this needs torch, its help does not."""
