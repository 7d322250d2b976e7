"""How experiments are run, recorded, checked and drawn; knows no problem and no peer."""
