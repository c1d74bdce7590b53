"""UCF-101, action recognition: the clips of a folder in its layout, decoded frame by frame."""
