"""How a model is divided over ranks, and how ranks communicate."""
