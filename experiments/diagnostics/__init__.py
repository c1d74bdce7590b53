"""Generated tasks that ask of a memory one thing each: to bind, to map, to keep up what is hidden, to do no harm."""
