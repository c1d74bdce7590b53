"""CUB-200-2011, masked patch reconstruction: images, masks, reference predictions and metrics."""
